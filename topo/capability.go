package topo

// Needs is the advice to an operator for a capability that an agent lacks as its unit leaves it out.
func Needs(capability string) string {
	return "the agent needs " + capability + ": CapabilityBoundingSet=" + capability + " in its unit (systemctl edit proffer-agent)"
}
