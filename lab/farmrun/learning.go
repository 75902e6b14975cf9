package farmrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/api"
	"proffer/lab/testbed"
)

// Learning has the servers of an LB's first service as it has learned them.
func (f *Farm) Learning(ctx context.Context, lb *testbed.Node) (*api.LearningStatus, error) {
	s, err := f.Status(ctx, lb)
	if err != nil {
		return nil, err
	}
	if len(s.Services) == 0 || s.Services[0].Learning == nil {
		return nil, fmt.Errorf("%s has learned nothing", lb.Name)
	}
	return s.Services[0].Learning, nil
}

// Resolved returns when all LBs know the way to all servers: one without gets no new flow.
func (f *Farm) Resolved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	for _, lb := range f.Bed.LBs {
		for {
			learning, err := f.Learning(ctx, lb)
			if err == nil && !slices.ContainsFunc(learning.Servers, func(s api.LearnedStatus) bool { return s.Weight == 0 }) {
				break
			}
			if Sleep(ctx, 50*time.Millisecond) != nil {
				return errors.Join(fmt.Errorf("%s does not know the way to all servers", lb.Name), err, ctx.Err())
			}
		}
	}
	return nil
}
