package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
)

// Network is a center and hosts, each of them a network namespace of its own. A pair of virtual interfaces links each host with the
// center. All of it disappears with the processes that keep the namespaces, also after kill -9. It needs root.
type Network struct {
	Center Host
	Hosts  []Host
}

// Host is one namespace.
type Host struct {
	keeper *Process
	Center string // address of the center, as this host sees it
}

// mostHosts bounds the hosts of a Network, because each has addresses of its own.
const mostHosts = 8

// centerAddress and hostAddress are the two ends of a link. The range is reserved for documentation.
func centerAddress(host int) net.IP { return net.IPv4(192, 0, 2, byte(4*host+1)) }
func hostAddress(host int) net.IP   { return net.IPv4(192, 0, 2, byte(4*host+2)) }

// NewNetwork makes a center and n hosts. The error says why this machine cannot.
func NewNetwork(ctx context.Context, n int) (_ *Network, err error) {
	w := &Network{}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.Center, err = newHost(); err != nil {
		return nil, err
	}
	for i := range n {
		h, err := newHost()
		h.Center = centerAddress(i).String()
		w.Hosts = append(w.Hosts, h)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprint("host", i)
		if err := errors.Join(
			w.Center.run(ctx, "ip", "link", "add", name, "type", "veth", "peer", "name", link, "netns", strconv.Itoa(h.keeper.PID())),
			w.Center.run(ctx, "ip", "addr", "add", h.Center+"/30", "dev", name),
			w.Center.run(ctx, "ip", "link", "set", name, "up"),
			h.run(ctx, "ip", "addr", "add", hostAddress(i).String()+"/30", "dev", link),
			h.Up(ctx),
		); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// link is the name of the interface of a host.
const link = "center"

func newHost() (h Host, err error) {
	if h.keeper, err = Run("namespace", nil, "unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"); err != nil {
		return h, err
	}
	_, err = h.keeper.Expect("ready")
	return h, err
}

// NoNetwork says why this machine cannot have a Network; "" = it can.
func NoNetwork(ctx context.Context) string {
	if !CanRunAs() {
		return "only root may make network namespaces"
	}
	w, err := NewNetwork(ctx, 1)
	if err != nil {
		return err.Error()
	}
	w.Close()
	return ""
}

// Close removes all namespaces. Their processes have ended.
func (w *Network) Close() {
	for _, h := range append(w.Hosts, w.Center) {
		if h.keeper != nil {
			h.keeper.Kill()
		}
	}
}

// Inside returns the command line that runs a command inside the namespace.
func (h Host) Inside(command ...string) []string {
	if h.keeper == nil {
		return command
	}
	return append([]string{"nsenter", "-t", strconv.Itoa(h.keeper.PID()), "-n", "--"}, command...)
}

func (h Host) run(ctx context.Context, command ...string) error {
	line := h.Inside(command...)
	if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return nil
}

// Down takes the link of the host down: packets are lost in both directions, and no connection ends.
func (h Host) Down(ctx context.Context) error { return h.run(ctx, "ip", "link", "set", link, "down") }

// Up brings the link up.
func (h Host) Up(ctx context.Context) error { return h.run(ctx, "ip", "link", "set", link, "up") }
