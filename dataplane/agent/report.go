package agent

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"proffer/dataplane/objects"
)

// The record of a report, and the field that the programs write.
const (
	reportBytes = int64(unsafe.Sizeof(objects.AgentReported{}))
	reportBusy  = int64(unsafe.Offsetof(objects.AgentReported{}.Busy))
	reportAsked = int64(unsafe.Offsetof(objects.AgentReported{}.Asked))
)

// Report copies the word of the application of service i to the programs: the busy count and the
// time when it was true (CLOCK_MONOTONIC; 0: never).
func (a *Agent) Report(i int, busy uint32, written time.Duration) error {
	var word [reportBusy + 4]byte
	binary.NativeEndian.PutUint64(word[:], uint64(written))
	binary.NativeEndian.PutUint32(word[reportBusy:], busy)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.reports.WriteAt(word[:], int64(a.numbers[i])*reportBytes); err != nil {
		return fmt.Errorf("report load of service %d: %w", i, err)
	}
	return nil
}

// reported reads back a word.
func (a *Agent) reported(number uint32) (busy uint32, written time.Duration, err error) {
	var word [reportBusy + 4]byte
	if _, err := a.reports.ReadAt(word[:], int64(number)*reportBytes); err != nil {
		return 0, 0, fmt.Errorf("read back a reported load: %w", err)
	}
	return binary.NativeEndian.Uint32(word[reportBusy:]), time.Duration(binary.NativeEndian.Uint64(word[:])), nil
}

// Asked counts the offers that met the report of service i since the last call.
func (a *Agent) Asked(i int) (offers uint32, err error) {
	var asked [4]byte
	a.mu.Lock()
	defer a.mu.Unlock()
	at := int64(a.numbers[i])*reportBytes + reportAsked
	_, err = a.reports.ReadAt(asked[:], at)
	offers = binary.NativeEndian.Uint32(asked[:])
	if err == nil && offers > 0 {
		_, err = a.reports.WriteAt(make([]byte, len(asked)), at)
	}
	if err != nil {
		return 0, fmt.Errorf("read how many offers met the load of service %d: %w", i, err)
	}
	return offers, nil
}
