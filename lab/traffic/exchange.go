package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/responder"
)

// exchange takes over a connection after its SYN has left, up to its close. The row
// is booked unless the run was cancelled before it was complete.
func (r *run) exchange(ctx context.Context, fd int, row Row) {
	// A non-blocking descriptor goes to Go's poller: waiting costs no thread.
	conn := os.NewFile(uintptr(fd), "connection")
	defer conn.Close()
	// It fails only for a descriptor that is not pollable.
	_ = conn.SetDeadline(r.began.Add(row.Intended + r.Timeout))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	err := r.converse(conn, &row)
	if err != nil && ctx.Err() != nil {
		return
	}
	row.Outcome = outcomeOf(err)
	if err != nil {
		row.Done, row.Cause = r.now(), err.Error()
	}
	r.end(row)
}

func (r *run) converse(conn *os.File, row *Row) error {
	retransmits, err := connected(conn)
	row.SYNRetransmits = retransmits
	if err != nil {
		return err
	}
	row.Connected = r.now()
	if err := r.ask(conn, row); err != nil {
		return err
	}
	answer := bufio.NewReaderSize(conn, 1024)
	if err := readAnswer(answer, row); err != nil {
		return err
	}
	row.Done = r.now()
	return readClose(answer)
}

// connected waits for the SYN-ACK and returns how often the SYN was sent again.
func connected(conn *os.File) (retransmits int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var result error
	err = raw.Write(func(fd uintptr) (settled bool) {
		retransmits, settled, result = handshake(int(fd))
		return settled
	})
	return retransmits, errors.Join(err, result)
}

func handshake(fd int) (retransmits int, settled bool, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, true, fmt.Errorf("read TCP_INFO: %w", err)
	}
	if info.State == unix.BPF_TCP_SYN_SENT {
		return int(info.Total_retrans), false, nil
	}
	failure, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && failure != 0 {
		err = os.NewSyscallError("connect", syscall.Errno(failure))
	}
	return int(info.Total_retrans), true, err
}

func (r *run) ask(conn *os.File, row *Row) error {
	_, err := fmt.Fprintf(conn, "GET /?service=%s HTTP/1.1\r\nHost: %s\r\n%s: %d\r\nConnection: close\r\n\r\n",
		row.Service, r.To, responder.HeaderID, row.ID)
	return err
}

func readAnswer(from *bufio.Reader, row *Row) error {
	answer, err := http.ReadResponse(from, nil)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	row.Server = answer.Header.Get(responder.HeaderServer)
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answer: %s", answer.Status)
	}
	if id := answer.Header.Get(responder.HeaderID); id != strconv.Itoa(row.ID) {
		return fmt.Errorf("answer is for request %q, not %d", id, row.ID)
	}
	return nil
}

// readClose waits for the server's FIN: a RST in its place is a reset, even
// though the answer was complete.
func readClose(from *bufio.Reader) error {
	_, err := from.ReadByte()
	switch {
	case err == io.EOF:
		return nil
	case err == nil:
		return errors.New("the answer has a tail")
	default:
		return fmt.Errorf("wait for the close: %w", err)
	}
}

func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return Reset
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return TimedOut
	default:
		return Failed
	}
}
