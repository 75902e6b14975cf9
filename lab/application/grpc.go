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
)

// The service has two methods: one takes CPU time, the other waits for the server behind.
const (
	grpcService = "proffer.lab.Work"
	grpcCPU     = "CPU"
	grpcWait    = "Wait"
)

// ServeGRPC serves gRPC over TLS, as the program of goRPC, until it fails.
func ServeGRPC(address, cert, key string) error {
	secure, err := credentials.NewServerTLSFromFile(cert, key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	burn := burner()
	server := grpc.NewServer(grpc.Creds(secure))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpcService,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: grpcCPU, Handler: grpcMethod(func(_ context.Context, d time.Duration) error { burn(d); return nil })},
			{MethodName: grpcWait, Handler: grpcMethod(func(ctx context.Context, d time.Duration) error { return askBehind(ctx, int(d.Microseconds())) })},
		},
	}, nil)
	return server.Serve(l)
}

// grpcMethod is a method that takes a time, and answers nothing.
func grpcMethod(do func(context.Context, time.Duration) error) grpc.MethodHandler {
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
	return &Program{Name: "go-grpc", Dial: dialGRPC, Share: 4, Start: startGo("grpc", dialGRPC), Exceptions: queued(CPU, Mixed)}
}
