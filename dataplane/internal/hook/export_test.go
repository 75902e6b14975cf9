package hook

// WithoutTCX is p on a kernel before 6.6.
func (p Place) WithoutTCX() Place {
	p.withoutTCX = true
	return p
}
