package application

import (
	"context"
	_ "embed"
	"fmt"
)

//go:embed source/server.js
var nodeServer string

//go:embed source/Server.java
var javaServer string

// startNode starts a server of Node. Its requests wait for the server behind, or for a timer.
func startNode(how string) func(context.Context, *Site) error {
	return func(ctx context.Context, s *Site) error {
		if err := s.behind(); err != nil {
			return err
		}
		if err := makePage(s); err != nil {
			return err
		}
		path, err := s.write("server.js", nodeServer)
		if err != nil {
			return err
		}
		if err := s.run("node", path, s.At.Addr().String(), fmt.Sprint(s.At.Port()), slowAt, how, pageFile(s)); err != nil {
			return err
		}
		return s.answersWeb(ctx, false)
	}
}

var nodeNeeds = []Need{{"node", "nodejs"}}

func node() *Program {
	return &Program{Name: "node", Needs: nodeNeeds, Dial: dialWeb(false, asked), Start: startNode("behind"), Word: filePage}
}

const timers = "a request that waits for a timer in an event loop looks as an idle connection does"

func nodeTimers() *Program {
	return &Program{
		Name: "node-timers", Needs: nodeNeeds, Dial: dialWeb(false, asked), Start: startNode("timer"), Word: filePage, Without: []Kind{CPU},
		Exceptions: excepting(timers, Wait, Mixed),
	}
}

func java() *Program {
	return &Program{
		Name: "java", Needs: []Need{{"javac", "default-jdk-headless"}}, Dial: dialWeb(false, asked), Word: filePage,
		Start: func(ctx context.Context, s *Site) error {
			if err := makePage(s); err != nil {
				return err
			}
			path, err := s.write("Server.java", javaServer)
			if err != nil {
				return err
			}
			// HttpServer closes idle connections beyond 200 by itself.
			err = s.run("java", "-Dsun.net.httpserver.maxIdleConnections=2000", "-Dsun.net.httpserver.idleInterval=3600",
				"-Dsun.net.httpserver.nodelay=true", path, s.At.Addr().String(), fmt.Sprint(s.At.Port()), pageFile(s))
			if err != nil {
				return err
			}
			return s.answersWeb(ctx, false)
		},
	}
}
