package schematest

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"proffer/schema"
)

// Rows plays every key of a table with each of its examples: the file is read, the noun T is written
// as a file, and that is read as the same noun. Together the files set every field of T but those named.
func Rows[T any](t *testing.T, table func(*T) []schema.Entry, others ...string) {
	t.Helper()
	fields := map[string]bool{}
	files := schema.Examples(func() []schema.Entry { return table(new(T)) })
	for _, file := range files {
		first, again := new(T), new(T)
		readAs(t, file, table(first))
		written := string(schema.Write(table(first)))
		readAs(t, written, table(again))
		if !reflect.DeepEqual(first, again) {
			t.Errorf("got %+v\nwant %+v\nfrom\n%s\nof\n%s", again, first, written, file)
		}
		for key := range strings.FieldsSeq(file) {
			if strings.HasSuffix(key, ":") && !strings.Contains(written, key) {
				t.Errorf("%s is lost\n%s", key, written)
			}
		}
		noteFields(reflect.ValueOf(first).Elem(), fields)
	}
	for _, field := range others {
		delete(fields, field)
	}
	for field, set := range fields {
		if !set {
			t.Errorf("%s is zero in each of %d files", field, len(files))
		}
	}
}

// Keys: the text has each key of the table.
func Keys(t testing.TB, where, text string, keys []schema.Entry) {
	t.Helper()
	for _, e := range keys {
		if !regexp.MustCompile(`[{ \n]` + e.Key + `:`).MatchString("\n" + text) {
			t.Errorf("%s does not have %s", where, e.Key)
		}
		Keys(t, where, text, e.Inside)
	}
}

func readAs(t *testing.T, file string, keys []schema.Entry) {
	t.Helper()
	doc := schema.Document{File: "example.yaml"}
	doc.Parse([]byte(file), keys)
	if err := doc.Err(); err != nil {
		t.Errorf("%v\n%s", err, file)
	}
}

// noteFields records of every field of our structs in v whether it is set anywhere.
func noteFields(v reflect.Value, set map[string]bool) {
	switch v.Kind() {
	case reflect.Interface:
		noteFields(v.Elem(), set)
	case reflect.Slice:
		for i := range v.Len() {
			noteFields(v.Index(i), set)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if strings.HasPrefix(v.Type().String(), "netip.") {
				return
			}
			field := v.Type().String() + "." + v.Type().Field(i).Name
			set[field] = set[field] || !v.Field(i).IsZero()
			noteFields(v.Field(i), set)
		}
	}
}
