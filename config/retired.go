package config

import "proffer/schema"

// retired lists the keys and values of earlier files.
var retired = []schema.Retired{
	{Was: "signal", Now: "load"},
	{Key: "load", Was: "shm", Now: "page"},
}
