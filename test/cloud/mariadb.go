package cloud

import (
	"context"
	"path/filepath"
)

// mariadb starts the database server of both services on a socket of its own, with copies of the
// databases in the root directory.
func (c *Cloud) mariadb(ctx context.Context) error {
	from := filepath.Join(c.o.root(), databases)
	if err := c.execute(ctx, "cp", "-a", from+"/.", c.o.Dir); err != nil {
		return err
	}

	_, err := c.start(ctx, "mariadbd", listens(c.path("mysql.sock")), c.o.Inside("mariadbd", "--no-defaults",
		"--datadir="+inside+"/mysql", "--socket="+inside+"/mysql.sock", "--skip-networking", "--user=root",
		"--pid-file="+inside+"/mysql.pid", "--innodb-flush-log-at-trx-commit=0",
		"--innodb-buffer-pool-size=64M", "--performance-schema=OFF")...)

	return err
}

// database returns the URL of a database.
func database(name string) string {
	return "mysql+pymysql://root@localhost/" + name + "?unix_socket=" + inside + "/mysql.sock"
}
