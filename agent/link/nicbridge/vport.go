package nicbridge

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/openvswitch.h.
const (
	vportFamily   = "ovs_vport"
	vportVersion  = 1
	vportDelete   = 2 // OVS_VPORT_CMD_DEL
	vportAttrName = 3 // OVS_VPORT_ATTR_NAME
)

// deleteVport removes a device from the kernel datapath, like ovs-dpctl del-if. datapath is the
// interface index of the datapath's device.
func deleteVport(datapath int, device string) error {
	family, err := netlink.GenlFamilyGet(vportFamily)
	if err != nil {
		return fmt.Errorf("find generic netlink family %s: %w", vportFamily, err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: vportDelete, Version: vportVersion})
	req.AddRawData(build(put32(uint32(datapath)), []attr{{vportAttrName, []byte(device + "\x00")}}))
	if _, err := req.Execute(unix.NETLINK_GENERIC, 0); err != nil && !errors.Is(err, syscall.ENODEV) {
		return err
	}
	return nil
}
