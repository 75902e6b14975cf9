package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"proffer/ownfile"
)

// Store is the file of an LB's record. The LB holds it while it lives, so that no other LB of this host, in
// another network namespace, uses the same file.
type Store struct {
	path    string
	of      string   // the LB and its farm
	held    *os.File // locked; nil: there is no file yet, or it is another LB's
	foreign *Foreign
}

// Foreign is a record that is another LB's. It is neither read nor written.
type Foreign struct{ Path, Why string }

func (f *Foreign) Error() string {
	return fmt.Sprintf("the record of pools %s is another LB's (%s): name another file in `state`, or remove it if that LB is gone", f.Path, f.Why)
}

// Open reads the record at path for the LB that of names; without a file there it is empty. After a *Corrupt
// or a *Foreign the record is empty, too; after any other error there is neither store nor record.
func Open(path, of string, at Moment) (*Store, *Record, error) {
	s := &Store{path: path, of: of}
	if err := s.hold(); err != nil {
		if errors.As(err, &s.foreign) {
			return s, &Record{}, err
		}
		return nil, nil, err
	}
	r, err := Read(path, at)
	if corrupt := (*Corrupt)(nil); errors.As(err, &corrupt) {
		s.Close() // it was moved aside
		return s, r, err
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	if err := s.mine(r); err != nil {
		return s, &Record{}, err
	}
	return s, r, nil
}

// mine lets go of a record of another LB.
func (s *Store) mine(r *Record) error {
	if r.of == "" || r.of == s.of {
		return nil
	}
	s.foreign = &Foreign{s.path, fmt.Sprintf("of %s, and this is %s", r.of, s.of)}
	return errors.Join(s.foreign, s.Close())
}

// hold locks the file that is at the path.
func (s *Store) hold() error {
	for {
		f, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO may have no writer
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
				err = &Foreign{s.path, "an LB of this host that runs has it"}
			}
		}
		if err != nil {
			if f != nil {
				f.Close()
			}
			return fmt.Errorf("hold the record of pools: %w: let the daemon read it, or name another file in `state`", err)
		}
		held, err := f.Stat()
		now, gone := os.Stat(s.path)
		if err == nil && gone == nil && os.SameFile(held, now) {
			s.held = f
			return nil
		}
		f.Close() // its holder has just replaced it
	}
}

// Write replaces the file by a record: after a crash there is the old record or the new record. A file that has
// this record already stays; the error is then that a new record could not have been written.
func (s *Store) Write(r *Record) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the record of pools: %w: make room, or name another file in `state`", err)
		}
	}()
	if s.foreign != nil {
		return s.foreign
	}
	if s.held == nil { // another LB may have made a record meanwhile
		if err := s.hold(); err != nil {
			return err
		}
		if other, err := Load(s.path); s.held != nil && err == nil && s.mine(other) != nil {
			return s.foreign
		}
	}
	data, err := json.MarshalIndent(r.file(s.of), "", "  ")
	if err != nil {
		return err
	}
	data = append(data, sumOf(data)...)
	fresh, err := stage(s.path, data)
	if err != nil {
		return err
	}
	was, err := ownfile.ReadRegular(s.path)
	if err == nil && bytes.Equal(was, data) {
		return errors.Join(os.Remove(fresh.Name()), fresh.Close())
	}
	if err = unix.Flock(int(fresh.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(fresh.Name(), s.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()), fresh.Close())
	}
	s.Close() // the old file is gone
	s.held = fresh
	return synced(filepath.Dir(s.path))
}

// stage writes a file beside the path.
func stage(path string, data []byte) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	fresh, err := os.CreateTemp(dir, filepath.Base(path)+".new-")
	if err != nil {
		return nil, err
	}
	_, err = fresh.Write(data)
	if err = errors.Join(err, fresh.Sync()); err != nil {
		return nil, errors.Join(err, os.Remove(fresh.Name()), fresh.Close())
	}
	return fresh, nil
}

func synced(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close lets another LB have the file.
func (s *Store) Close() error {
	if s.held == nil {
		return nil
	}
	held := s.held
	s.held = nil
	return held.Close()
}
