package guest

import (
	"bytes"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// archive is an initramfs in cpio's "newc" form (the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst): a header of
// hexadecimal numbers, the name, the content, each padded to 4 bytes.
type archive struct {
	out     bytes.Buffer
	entries int
	folders map[string]bool
}

// file adds an executable file, and before it the folders it is in.
func (a *archive) file(name string, content []byte) {
	a.parents(name)
	a.entry(name, unix.S_IFREG|0o700, content)
}

func (a *archive) parents(name string) {
	folder := path.Dir(name)
	if folder == "." || a.folders[folder] {
		return
	}
	if a.folders == nil {
		a.folders = map[string]bool{}
	}
	a.folders[folder] = true
	a.parents(folder)
	a.entry(folder, unix.S_IFDIR|0o755, nil)
}

// bytes ends the archive and returns it.
func (a *archive) bytes() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.out.Bytes()
}

func (a *archive) entry(name string, mode uint32, content []byte) {
	a.entries++
	a.out.WriteString("070701")
	for _, field := range []int{
		a.entries, int(mode), 0, 0, 1, 0, // inode, mode, uid, gid, links, mtime
		len(content), 0, 0, 0, 0, // size, four device numbers
		len(name) + 1, 0, // with its NUL; no checksum
	} {
		fmt.Fprintf(&a.out, "%08x", field)
	}
	a.out.WriteString(name)
	a.out.WriteByte(0)
	a.pad()
	a.out.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.out.Len()%4 != 0 {
		a.out.WriteByte(0)
	}
}
