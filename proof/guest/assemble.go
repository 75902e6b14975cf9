package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// assemble returns the path of the kernel and the initramfs that goes with it.
func assemble(ctx context.Context, c Config) (kernel string, initramfs []byte, err error) {
	packages, err := openCache()
	if err != nil {
		return "", nil, err
	}
	name := c.Kernel
	if name == "" {
		name = DefaultKernel
	}
	dir, kernel, err := packages.kernel(ctx, name)
	if err != nil {
		return "", nil, err
	}
	tools, err := packages.unpacked(ctx, "busybox-static")
	if err != nil {
		return "", nil, err
	}
	init, err := Build(ctx, "proffer/proof/guest/internal/init")
	if err != nil {
		return "", nil, err
	}
	var a archive
	a.file("init", init)
	modules, err := modulesOf(dir, wanted())
	if err != nil {
		return "", nil, err
	}
	copies := map[string]string{"bin/busybox": filepath.Join(tools, "bin/busybox")}
	for i, path := range modules {
		copies[fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path))] = path
	}
	for name, path := range copies {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", nil, fmt.Errorf("fill the initramfs: %w", err)
		}
		a.file(name, content)
	}
	for name, content := range c.Files {
		a.file(strings.TrimPrefix(name, "/"), content)
	}
	return kernel, a.bytes(), nil
}

// Build compiles a Go command of this module as a guest can run it: there are
// no shared libraries.
func Build(ctx context.Context, pkg string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "proffer-guest-")
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", pkg, err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return os.ReadFile(file)
}
