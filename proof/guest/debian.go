package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// cache is a folder of unpacked Debian packages, by name. One that is there is
// never looked up again: remove its folder to get a newer one.
type cache string

// openCache returns this user's.
func openCache() (cache, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for kernels: %w", err)
	}
	dir := filepath.Join(user, "proffer", "debian")
	return cache(dir), os.MkdirAll(dir, 0o755)
}

// unpacked returns the folder with a package's files, and its control file in
// DEBIAN. It is downloaded if need be; nothing is installed.
func (c cache) unpacked(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(string(c), name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	work, err := os.MkdirTemp(string(c), "."+name+"-")
	if err != nil {
		return "", fmt.Errorf("download %s: %w", name, err)
	}
	defer os.RemoveAll(work)
	if err := command(ctx, work, "apt-get", "download", "-q", name); err != nil {
		return "", fmt.Errorf("download %s (is there such a package? apt-get update): %w", name, err)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("download %s: %d files: %w", name, len(debs), err)
	}
	content := filepath.Join(work, "content")
	if err := command(ctx, work, "dpkg-deb", "--raw-extract", debs[0], content); err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	// Whole or not at all; and another run may have been quicker.
	if err := os.Rename(content, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return dir, nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// kernel returns the folder of a kernel package and the kernel in it.
func (c cache) kernel(ctx context.Context, name string) (dir, image string, err error) {
	if dir, err = c.unpacked(ctx, name); err != nil {
		return "", "", err
	}
	control, err := os.ReadFile(filepath.Join(dir, "DEBIAN/control"))
	if err != nil {
		return "", "", err
	}
	// An empty package like linux-image-cloud-amd64 stands for the one it needs.
	needed := regexp.MustCompile(`(?m)^Depends:.*\b(linux-image-[^ ,]+)`).FindSubmatch(control)
	if needed != nil {
		if dir, err = c.unpacked(ctx, string(needed[1])); err != nil {
			return "", "", err
		}
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return "", "", fmt.Errorf("package %s has %d kernels in %s, want one", name, len(images), dir)
	}
	return dir, images[0], nil
}
