package agent

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"proffer/dataplane/objects"
	"proffer/foreign"
	"proffer/topo"
)

// noNamespace is a number that no network namespace has: lookups find no socket.
const noNamespace = math.MaxInt32

// netnsID returns the number that this network namespace has for the namespace at path,
// such as /run/netns/NAME. It assigns a number if there is none. A path where nothing is, as
// while a container restarts, has noNamespace.
func netnsID(path string) (int32, error) {
	f, err := foreign.OpenNamespace(path)
	if errors.Is(err, os.ErrNotExist) {
		return noNamespace, nil
	}
	if err != nil {
		return 0, fmt.Errorf("number network namespace %s (is it a namespace?): %w", path, err)
	}
	defer f.Close()
	id, err := netlink.GetNetNsIdByFd(int(f.Fd()))
	if err == nil && id < 0 {
		const any = -1 // NETNSA_NSID: the kernel chooses
		if err = netlink.SetNetNsIdByFd(int(f.Fd()), any); err == nil {
			id, err = netlink.GetNetNsIdByFd(int(f.Fd()))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("number network namespace %s (is it a namespace?): %w", path, err)
	}
	if id < 0 {
		return 0, fmt.Errorf("network namespace %s has no number", path)
	}
	return int32(id), nil
}

// Follow is plane.Follow, and follows the paths of the services' network namespaces: that of
// a container that restarts is another namespace at the same path.
func (a *Agent) Follow() (changed string, err error) {
	changed, err = a.Plane.Follow()
	changes, errSpaces := a.followNamespaces()
	if changed != "" {
		changes = append([]string{changed}, changes...)
	}
	return strings.Join(changes, ", "), errors.Join(err, errSpaces)
}

// followNamespaces gives the programs the numbers of the namespaces that are at the paths
// now. The number of a namespace that is gone may soon be another namespace's.
func (a *Agent) followNamespaces() (changes []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moved := false
	for i := range a.services {
		s := &a.services[i]
		if s.Owner != topo.Netns {
			continue
		}
		id, errID := netnsID(s.Netns)
		if errID != nil { // it is no namespace yet, or no more
			id = noNamespace
		}
		if id == a.spaces[s.VIP] {
			continue
		}
		if err := a.writeOffering(s, a.numbers[i], id); err != nil {
			return changes, fmt.Errorf("follow the network namespace of service %s: %w", s.Name, err)
		}
		is := "is another one"
		if id == noNamespace {
			is = "is gone"
		}
		moved = true
		changes = append(changes, fmt.Sprintf("the network namespace at %s %s", s.Netns, is))
	}
	if moved {
		return changes, a.work.offer(a.services, a.numbers)
	}
	return changes, nil
}

// writeOffering writes a service as the programs read it.
func (a *Agent) writeOffering(s *topo.Offering, number uint32, namespace int32) error {
	o := offeringOf(s, a.measureOf(s), number, namespace)
	a.spaces[s.VIP] = namespace
	none := objects.AgentRemembered{} // the number may have been another service's
	if err := a.objs.Listeners.Put(number, none); err != nil {
		return fmt.Errorf("forget the listener of service %s: %w", s.Name, err)
	}
	if err := a.handPage(s, number); err != nil {
		return err
	}
	if err := a.offered.set(&o); err != nil {
		return err
	}
	a.offered.add(s.VIP)
	return errors.Join(
		a.objs.Offerings.Put(objects.ServiceKey(s.VIP), number),
		a.objs.Offerings.Put(vipKey(s.VIP), number))
}

// namespacesOf are the numbers of the namespaces with the services' sockets; -1: this namespace. A path with
// another file has noNamespace, and an error.
func namespacesOf(services []topo.Offering) (spaces []int32, err error) {
	for _, s := range services {
		space := int32(-1)
		if s.Owner == topo.Netns {
			var failed error
			if space, failed = netnsID(s.Netns); failed != nil {
				space = noNamespace
				err = errors.Join(err, fmt.Errorf("service %s: %w", s.Name, failed))
			}
		}
		spaces = append(spaces, space)
	}
	return spaces, err
}
