package application

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"proffer/lab/testbed"
)

// pg is a client of PostgreSQL: its protocol 3.0, simple queries.
type pg struct {
	net.Conn
	r *bufio.Reader
}

func dialPostgres(ctx context.Context, s *Site) (Conn, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &pg{conn, bufio.NewReader(conn)}
	hello := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	if err = c.send(nil, hello); err == nil {
		err = c.ready()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// send sends a message: its type, if it has one, its length and its text.
func (c *pg) send(kind []byte, text string) error {
	message := binary.BigEndian.AppendUint32(kind, uint32(4+len(text)))
	if _, err := c.Write(append(message, text...)); err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	return nil
}

// ready reads messages until the server waits for a query.
func (c *pg) ready() error {
	var failed error
	for {
		var head [5]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return errors.Join(failed, fmt.Errorf("PostgreSQL: %w", err))
		}
		text := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c.r, text); err != nil {
			return fmt.Errorf("PostgreSQL: %w", err)
		}
		switch head[0] {
		case 'E':
			failed = fmt.Errorf("PostgreSQL: %q", text)
		case 'Z':
			return failed
		}
	}
}

// burnSQL takes a µs of CPU time for each few rows, about.
const burnSQL = "SELECT count(*) FROM generate_series(1, %d)"

func (c *pg) Ask(ctx context.Context, r Request) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	query := "SELECT 1"
	if r.CPU > 0 {
		query = fmt.Sprintf(burnSQL, 8*r.CPU.Microseconds())
	} else if r.Wait > 0 {
		query = fmt.Sprintf("SELECT pg_sleep(%f)", r.Wait.Seconds())
	}
	if err := c.send([]byte{'Q'}, query+"\x00"); err != nil {
		return err
	}
	return c.ready()
}

// postgresUser is a user that PostgreSQL runs as: not root.
const postgresUser = "postgres"

func postgres() *Program {
	server := Need{"/usr/lib/postgresql/*/bin/postgres", "postgresql"}
	return &Program{
		Name: "postgresql", Needs: []Need{server, {"setpriv", "util-linux"}}, Dial: dialPostgres,
		Start: func(ctx context.Context, s *Site) error {
			data := filepath.Join(s.Dir, "data")
			if err := os.Mkdir(data, 0o700); err != nil {
				return fmt.Errorf("make its folder: %w", err)
			}
			as := []string{"--reuid", postgresUser, "--regid", postgresUser, "--clear-groups",
				"--inh-caps", "+net_bind_service", "--ambient-caps", "+net_bind_service"} // its port is below 1024
			initdb := filepath.Join(filepath.Dir(server.find()), "initdb")
			if err := s.prepare(ctx, "chown", postgresUser, data); err != nil {
				return err
			}
			if err := s.prepare(ctx, "setpriv", append(as, initdb, "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "--locale", "C")...); err != nil {
				return err
			}
			hba := filepath.Join(data, "pg_hba.conf")
			if err := os.WriteFile(hba, []byte("host all all all trust\n"), 0o644); err != nil {
				return fmt.Errorf("configure PostgreSQL: %w", err)
			}
			err := s.run("setpriv", append(as, server.find(), "-D", data, "-h", s.At.Addr().String(), "-p", fmt.Sprint(s.At.Port()),
				"-k", "", "-c", "max_connections=1100", "-c", "fsync=off", "-c", "jit=off", "-c", "autovacuum=off")...)
			if err != nil {
				return err
			}
			return s.answers(ctx, dialPostgres)
		},
	}
}

// prepare runs a program to its end.
func (s *Site) prepare(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.Dir
	p, err := s.Server.StartCommand(cmd)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, logOf(p))
	}
	return nil
}

func logOf(p *testbed.Process) string {
	if p == nil {
		return ""
	}
	return p.Log()
}
