package schema_test

import (
	"fmt"

	"proffer/schema"
)

type server struct {
	Name   string
	Weight int
}

func serverKeys(s *server) []schema.Entry {
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&s.Name), "Name of the server.").Eg("s1"),
		schema.Optional("weight", "1", schema.Whole(0, 65535).Into(&s.Weight), "Its share."),
	}
}

// A document collects the mistakes of its values, then those that no single value shows.
func ExampleDocument() {
	var servers []server
	keys := []schema.Entry{schema.Need("servers", schema.Sequence(&servers, 1, 4, serverKeys), "The pool.")}

	doc := schema.Document{File: "pool.yaml"}
	doc.Parse([]byte("servers:\n- name: s1\n- {name: s1, weight: 3}\n"), keys)
	fmt.Println(doc.OK(), servers)
	doc.Failf("servers[1].name", "is that of line %d, too", doc.Line("servers[0].name"))
	fmt.Println(doc.Err())

	doc = schema.Document{File: "pool.yaml", Retired: []schema.Retired{{Was: "share", Now: "weight"}}}
	doc.Parse([]byte("servers: [{nam: s1}, {name: s2, share: 3}, {name: s3, weight: -1}]"), keys)
	fmt.Println(doc.Err())
	// Output:
	// true [{s1 1} {s1 3}]
	// pool.yaml:3:10: servers[1].name: is that of line 2, too
	// pool.yaml:1:11: servers[0].name: is missing; want a name of 1 to 63 letters, digits and . _ : [ ] -
	// pool.yaml:1:12: servers[0].nam: unknown key; did you mean name? want name, weight
	// pool.yaml:1:33: servers[1].share: `share` is now `weight`
	// pool.yaml:1:63: servers[2].weight: "-1" is not a whole number from 0 to 65535
}
