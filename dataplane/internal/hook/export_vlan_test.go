package hook

// StrippedAmong is StrippedVLANs among given links.
var StrippedAmong = stripped
