package topo

// Measure is the measure of a server's load that its agent reads.
type Measure uint8

// MeasureRow is all that Go code asks of a load measure.
type MeasureRow struct {
	Name    string
	Meaning string // one line, the schema's

	Sockets bool    // counts the kernel's TCP sockets in the agent's own network namespace
	Payload bool    // goes by the direction of payload, which TLS 1.3 and HTTP/2 hide
	Page    bool    // is the word of the program that Offering.Source names
	Work    bool    // counts the work of the service's processes, where the kernel allows it
	Instead Measure // where it does not
}

var measures = [...]MeasureRow{
	Busy: {
		Name:    "busy",
		Meaning: "requests in progress, accept queue, and accepted but not arrived",
		Payload: true,
	},
	Sockets: {
		Name:    "sockets",
		Meaning: "open connections",
		Sockets: true,
	},
	Page: {
		Name:    "page",
		Meaning: "the application's own word",
		Page:    true,
	},
	Work: {
		Name:    "work",
		Meaning: "requests that the server's processes have in hand or before them, of any protocol",
		Work:    true,
		Instead: Busy,
	},
}

// Measures lists the load measures.
func Measures() []Measure { return listed[Measure](len(measures)) }

func (m Measure) Row() MeasureRow { return measures[m] }
func (m Measure) String() string  { return measures[m].Name }
func (m Measure) Sockets() bool   { return measures[m].Sockets }
func (m Measure) Page() bool      { return measures[m].Page }
func (m Measure) Work() bool      { return measures[m].Work }
