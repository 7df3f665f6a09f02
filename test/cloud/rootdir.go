package cloud

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	_ "embed"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

//go:embed root
var script string

// rootDir is the name of the root directory below the cache.
const rootDir = "cloud"

// databases is the directory in the root directory with the databases of a new cloud, and with the
// keys of Keystone. The script writes it last.
const databases = "var/lib/cloud"

func (o Options) cache() string { return cmp.Or(o.Cache, platform.CacheDir()) }

func (o Options) root() string { return filepath.Join(o.cache(), rootDir) }

// MakeRoot makes the root directory below the cache, unless it exists. This takes five minutes, and its
// steps are written to progress.
func MakeRoot(cache string, progress io.Writer) error {
	root, err := filepath.Abs(filepath.Join(cache, rootDir))
	if err != nil {
		return fmt.Errorf("make root directory of cloud: %w", err)
	}

	if _, err := os.Stat(filepath.Join(root, databases)); err == nil {
		return nil
	}

	cmd := exec.Command("bash", "-s", "--", root)

	var stderr strings.Builder

	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(script), progress, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make root directory of cloud: %w: %s", err, strings.TrimSpace(stderr.String()))
	}

	return nil
}

// enter runs a program in the root directory $1, with the cloud's directory $2 at /cloud and that of
// OVN's databases $3 at /cloud/ovn. The mounts are in a mount namespace of the program.
const enter = `set -e
root=$1 dir=$2 ovn=$3
shift 3
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$dir" "$root/cloud"
mkdir -p "$root/cloud/ovn"
mount --bind "$ovn" "$root/cloud/ovn"
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
	PYTHONDONTWRITEBYTECODE=1 OS_CLIENT_CONFIG_FILE=/cloud/clouds.yaml OS_CLOUD=k8s "$@"
`

// Inside returns the command that runs argv in the root directory of the cloud. The command replaces
// itself, so the program has its process ID.
func (o Options) Inside(argv ...string) []string {
	outer := []string{"unshare", "--mount", "--", "sh", "-c", enter, rootDir, o.root(), o.Dir, o.OVN}
	return append(outer, argv...)
}
