module example.org/three

go 1.26.0

require proffer v0.0.0

require (
	github.com/goccy/go-yaml v1.19.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)

replace proffer => ../../..
