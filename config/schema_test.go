package config

import (
	"testing"

	"proffer/schema/schematest"
	"proffer/topo"
)

func TestSchemas(t *testing.T) {
	schematest.Published(t, "lb", LBSchema, lbFile(new(topo.LB)))
	schematest.Published(t, "agent", AgentSchema, agentFile(new(topo.Agent)))
}
