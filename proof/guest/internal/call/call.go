// Package call has the messages between a guest and its host: JSON, one
// Request and one Reply in turn.
package call

// Request asks the guest to run a program to its end.
type Request struct {
	Args []string // the program, looked up in /bin, and its arguments
}

// Reply is the outcome of a call.
type Reply struct {
	Error          string // why the program did not start, or ""
	Code           int    // exit code, -1 if a signal ended it
	Stdout, Stderr string
}
