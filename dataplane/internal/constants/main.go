// Command constants writes a package's constants_gen.go from the enums of the C
// programs, and constants_gen_test.go with all values that have a name in Go. It runs
// in the package's own folder. Its argument is the folder bpf. It
// compiles core/constants.bpf.c there and reads its BTF.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// enum is the spelling of an enum of C in Go.
type enum struct {
	c      string
	prefix string // of its values in C
	suffix string // of its values in Go
	kind   string // Go's type; none: numbers
	hex    bool
}

// packages has the enums of each Go package.
func packages() map[string][]enum {
	return map[string][]enum{
		"topo": {
			{c: "limits"},
			{c: "edge_limits"},
			{c: "dispatch", prefix: "DISPATCH_", kind: "Dispatch"},
			{c: "wire", prefix: "WIRE_", kind: "Wire"},
			{c: "fragments", prefix: "FRAGMENTS_", suffix: "Fragments", kind: "Fragments"},
			{c: "recovery", prefix: "RECOVERY_", suffix: "Recovery", kind: "Recovery"},
			{c: "counting", prefix: "COUNT_", suffix: "Counting", kind: "Counting"},
			{c: "acceptance", prefix: "ACCEPT_", kind: "Acceptance"},
			{c: "measure", prefix: "MEASURE_", kind: "Measure"},
			{c: "on_full", prefix: "FULL_", kind: "OnFull"},
			{c: "owner", prefix: "OWNER_", kind: "Owner"},
		},
		"objects": {
			{c: "delivery"},
			{c: "pending_ring"},
			{c: "service_slot"},
			{c: "plain"},
			{c: "sender_slots"},
			{c: "bucket_layout"},
			{c: "list_end"},
			{c: "tally_layout"},
			{c: "alias_layout"},
			{c: "crowding"},
			{c: "hinting"},
			{c: "hinted"},
			{c: "conn_state"},
			{c: "conn_flags"},
			{c: "conn_date"},
			{c: "completeness"},
			{c: "work_term"},
			{c: "work_sharing"},
		},
		"wire": {
			{c: "function", prefix: "FN_", kind: "Function", hex: true},
			{c: "sid_flags", prefix: "SID_", kind: "Flags"},
			{c: "argument"},
			{c: "edge_wire"},
			{c: "edge_message"},
			{c: "edge_way"},
		},
	}
}

func main() {
	if err := run(os.Getenv("GOPACKAGE"), os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "constants:", err)
		os.Exit(1)
	}
}

func run(name, sources string) error {
	enums, known := packages()[name]
	if !known {
		return fmt.Errorf("package %q has no enum; run it by go generate", name)
	}
	spec, err := compile(sources)
	if err != nil {
		return err
	}
	code, list := header(name), header(name)+"var named = []interface{ String() string }{\n"
	named := false
	for _, e := range enums {
		names, err := e.write(&code, spec)
		if err != nil {
			return err
		}
		if e.kind != "" {
			named = true
			list += strings.Join(names, ", ") + ",\n"
		}
	}
	if err := save("constants_gen.go", code); err != nil || !named {
		return err
	}
	return save("constants_gen_test.go", list+"}\n")
}

func header(name string) string {
	return "// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.\n\npackage " + name + "\n\n"
}

// compile returns the BTF of the enums.
func compile(dir string) (*btf.Spec, error) {
	temporary, err := os.MkdirTemp("", "constants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	object := filepath.Join(temporary, "constants.o")
	out, err := exec.Command("clang-19", "-g", "-O2", "-target", "bpfel", "-mcpu=v3", "-I"+dir,
		"-I/usr/include/x86_64-linux-gnu", "-I/usr/include/aarch64-linux-gnu",
		"-c", filepath.Join(dir, "core", "constants.bpf.c"), "-o", object).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compile the enums: %w\n%s", err, out)
	}
	return btf.LoadSpec(object)
}

// write appends the enum's constants, and returns their names.
func (e enum) write(code *string, spec *btf.Spec) (names []string, err error) {
	var found *btf.Enum
	if err := spec.TypeByName(e.c, &found); err != nil {
		return nil, fmt.Errorf("enum %s: %w", e.c, err)
	}
	*code += "// enum " + e.c + "\nconst (\n"
	for _, v := range found.Values {
		rest, ok := strings.CutPrefix(v.Name, e.prefix)
		if !ok {
			return nil, fmt.Errorf("%s of enum %s does not begin with %s", v.Name, e.c, e.prefix)
		}
		name := camel(rest) + e.suffix
		names = append(names, name)
		verb := "%s %s = %d\n"
		if e.hex {
			verb = "%s %s = %#x\n"
		}
		*code += fmt.Sprintf(verb, name, e.kind, v.Value)
	}
	*code += ")\n\n"
	return names, nil
}

// camel spells ABC_DEF AbcDef.
func camel(s string) (name string) {
	for word := range strings.SplitSeq(s, "_") {
		name += word[:1] + strings.ToLower(word[1:])
	}
	return name
}

func save(file, code string) error {
	text, err := format.Source([]byte(code))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, text) {
		return nil
	}
	return os.WriteFile(file, text, 0o644)
}
