package application

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"proffer/loadpage"
)

// The service has two methods: one takes CPU time, the other waits for the server behind.
const (
	grpcService = "proffer.lab.Work"
	grpcCPU     = "CPU"
	grpcWait    = "Wait"
)

// serveGRPC serves gRPC over TLS, as the program of goRPC: at an address, with a certificate and its
// key.
func serveGRPC(args []string, busy *loadpage.Counter) error {
	burn := burner()
	return serveMethods(args, busy, map[string]grpcWork{
		grpcCPU:  func(_ context.Context, d time.Duration) error { burn(d); return nil },
		grpcWait: func(ctx context.Context, d time.Duration) error { return askBehind(ctx, int(d.Microseconds())) },
	})
}

// upstreamAt is where the server of gRPC behind a proxy is, on its own host.
const upstreamAt = "[::1]:9001"

// serveGRPCProxy gives all calls on to another server of gRPC, on one connection.
func serveGRPCProxy(args []string, busy *loadpage.Counter) error {
	secure := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // the certificate is our own
	upstream, err := grpc.NewClient("passthrough:///"+upstreamAt, grpc.WithTransportCredentials(secure))
	if err != nil {
		return fmt.Errorf("gRPC: %w", err)
	}
	methods := map[string]grpcWork{}
	for _, name := range []string{grpcCPU, grpcWait} {
		methods[name] = func(ctx context.Context, d time.Duration) error {
			return upstream.Invoke(ctx, "/"+grpcService+"/"+name, durationpb.New(d), new(emptypb.Empty))
		}
	}
	return serveMethods(args, busy, methods)
}

// grpcWork does the work of a method, which takes a time.
type grpcWork func(context.Context, time.Duration) error

// serveMethods serves methods, by their names.
func serveMethods(args []string, busy *loadpage.Counter, methods map[string]grpcWork) error {
	secure, err := credentials.NewServerTLSFromFile(args[1], args[2])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	service := &grpc.ServiceDesc{ServiceName: grpcService, HandlerType: (*any)(nil)}
	for name, work := range methods {
		counted := func(ctx context.Context, d time.Duration) error {
			busy.Add()
			defer busy.Done()
			return work(ctx, d)
		}
		service.Methods = append(service.Methods, grpc.MethodDesc{MethodName: name, Handler: grpcMethod(counted)})
	}
	server := grpc.NewServer(grpc.Creds(secure))
	server.RegisterService(service, nil)
	return server.Serve(l)
}

// grpcMethod is a method that takes a time, and answers nothing.
func grpcMethod(do grpcWork) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		d := new(durationpb.Duration)
		if err := decode(d); err != nil {
			return nil, err
		}
		return new(emptypb.Empty), do(ctx, d.AsDuration())
	}
}

// rpc is a client of gRPC.
type rpc struct{ *grpc.ClientConn }

func dialGRPC(_ context.Context, s *Site) (Conn, error) {
	secure := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // the certificate is our own
	conn, err := grpc.NewClient("passthrough:///"+s.At.String(), grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.dial(ctx) }))
	if err != nil {
		return nil, fmt.Errorf("gRPC: %w", err)
	}
	return &rpc{conn}, nil
}

func (c *rpc) Ask(ctx context.Context, r Request) error {
	method, d := grpcCPU, r.CPU
	if r.Wait > 0 {
		method, d = grpcWait, r.Wait
	}
	return c.Invoke(ctx, "/"+grpcService+"/"+method, durationpb.New(d), new(emptypb.Empty))
}

func goRPC() *Program {
	return &Program{
		Name: "go-grpc", Dial: dialGRPC, Share: 4, Start: startGo("grpc", dialGRPC), Word: handedPage,
		Exceptions: excepting(goroutines, CPU, Mixed), Cure: "go-grpc" + threads,
	}
}

const multiplexed = "all requests are on one connection to the server behind, which counts as one"

// proxyRPC is multiplexed on both sides.
func proxyRPC() *Program {
	return &Program{
		Name: "grpc-proxy", Dial: dialGRPC, Share: 4, Word: handedPage,
		Exceptions: excepting(multiplexed, CPU, Wait, Mixed),
		Start: func(ctx context.Context, s *Site) error {
			cert, key, err := s.certify()
			if err != nil {
				return err
			}
			if err := s.behind(); err != nil {
				return err
			}
			if err := s.runServed("grpc", "", upstreamAt, cert, key); err != nil {
				return err
			}
			if err := s.runServed("grpc-proxy", s.Page, s.At.String(), cert, key); err != nil {
				return err
			}
			return s.answers(ctx, dialGRPC)
		},
	}
}
