package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"
)

// escapes clear a terminal, name its window, turn the line round, and are no UTF-8.
const escapes = "web\x1b[2J\x1b]0;own\x07\u009b31m\u202e\r\n\xff"

// filled has these texts wherever a status has a text, and an element wherever it may have some.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(escapes)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(escapes), reflect.Zero(v.Type().Elem()))
	}
}

// wantPrintable fails the test if a text has a character that does not print, but for the ends of lines.
func wantPrintable(t *testing.T, label, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		at := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) })
		if at >= 0 || !utf8.ValidString(line) {
			t.Errorf("%s: %.200q", label, line[max(0, at-20):])
		}
	}
}

// TestTextsArePrintable: no text of a daemon reaches a terminal or a reader of its metrics as it came,
// whatever field it is in.
func TestTextsArePrintable(t *testing.T) {
	path := socket(t)
	var s Status
	filled(reflect.ValueOf(&s).Elem())
	answering(t, path, func() (Status, error) { return s, nil })
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for _, page := range []string{"/status", "/metrics"} {
		resp, err := client.Get("http://proffer" + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(text) < 200 {
			t.Fatalf("%s: %q, %v", page, text, err)
		}
		wantPrintable(t, page, string(text))
		if strings.Contains(string(text), `\u001b`) || strings.Contains(string(text), `\ufffd`) {
			t.Errorf("%s has escapes that its reader takes back", page)
		}
	}
	if s.Node != escapes || s.Services[0].Load.Word.Trouble != escapes {
		t.Error("the daemon's own texts were changed")
	}
}

// TestAnswerOfAnImpostor: another program at the control socket writes neither to the terminal nor
// without end.
func TestAnswerOfAnImpostor(t *testing.T) {
	path := socket(t)
	var s Status
	filled(reflect.ValueOf(&s).Elem())
	good, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]func(w http.ResponseWriter){
		"status": func(w http.ResponseWriter) { w.Write(good) },
		"error":  func(w http.ResponseWriter) { http.Error(w, escapes, http.StatusInternalServerError) },
		"without end": func(w http.ResponseWriter) {
			for line, err := strings.Repeat(" ", 1<<16), error(nil); err == nil; {
				_, err = io.WriteString(w, line)
			}
		},
	}
	var answer atomic.Value
	l := listen(t, path)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer.Load().(func(http.ResponseWriter))(w) }))
	for name, a := range answers {
		answer.Store(a)
		got, err := Ask(t.Context(), path)
		if (err == nil) != (name == "status") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "status" {
			text, _ := json.Marshal(got)
			wantPrintable(t, name, string(text))
			wantPrintable(t, name, fmt.Sprintf("%+v", got.Services))
		} else {
			wantPrintable(t, name, err.Error())
		}
	}
}
