package guest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// wanted are the modules a guest needs: its link, its line, the queueing discipline of
// the agent's program on the way out, and the bench's link.
func wanted() []string {
	return []string{"virtio_pci", "virtio_net", "virtio_console", "sch_ingress", "cls_bpf", "veth"}
}

// modules finds and orders the modules of an unpacked kernel.
type modules struct {
	files   map[string]string // path of each, by name
	builtin string            // the kernel's list of those that are no files
	ordered []string          // paths, each after those it needs
	taken   map[string]bool
}

// modulesOf returns the paths of the wanted modules and of all they need, in
// the order in which they load. Debian's packages have no modules.dep: that is
// made where they are installed.
func modulesOf(kernel string, names []string) ([]string, error) {
	m := modules{files: map[string]string{}, taken: map[string]bool{}}
	err := filepath.WalkDir(filepath.Join(kernel, "lib/modules"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name, ok := strings.CutSuffix(d.Name(), ".ko"); ok {
			m.files[canonical(name)] = path
		}
		if d.Name() == "modules.builtin" {
			text, err := os.ReadFile(path)
			m.builtin = canonical(string(text))
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for kernel modules: %w", err)
	}
	for _, name := range names {
		if err := m.take(name); err != nil {
			return nil, err
		}
	}
	return m.ordered, nil
}

// canonical spells a module's name as its users do: virtio-rng.ko is virtio_rng.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

func (m *modules) take(name string) error {
	if m.taken[name] || strings.Contains(m.builtin, "/"+name+".ko\n") {
		return nil
	}
	m.taken[name] = true
	path, ok := m.files[name]
	if !ok {
		return fmt.Errorf("the kernel has no module %s", name)
	}
	needs, err := needsOf(path)
	if err != nil {
		return fmt.Errorf("read kernel module %s: %w", path, err)
	}
	for _, n := range needs {
		if err := m.take(canonical(n)); err != nil {
			return fmt.Errorf("%w, which %s needs", err, name)
		}
	}
	m.ordered = append(m.ordered, path)
	return nil
}

// needsOf reads the line "depends=a,b" among the NUL-ended ones that modpost
// leaves in a module.
func needsOf(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(info, []byte{0}) {
		if names, ok := bytes.CutPrefix(line, []byte("depends=")); ok && len(names) > 0 {
			return strings.Split(string(names), ","), nil
		}
	}
	return nil, nil
}
