package application

import (
	"context"
	_ "embed"
)

//go:embed source/app.py
var pythonApp string

// gunicorn has 4 workers, each with threads: only those can keep connections open.
func gunicorn() *Program {
	return &Program{
		Name: "gunicorn", Needs: []Need{{"gunicorn", "gunicorn"}}, Dial: dialWeb(false, asked),
		Start: func(ctx context.Context, s *Site) error {
			if _, err := s.write("app.py", pythonApp); err != nil {
				return err
			}
			err := s.run("gunicorn", "--bind", s.At.String(), "--workers", "4", "--worker-class", "gthread", "--threads", "8",
				"--keep-alive", "3600", "--worker-connections", "2000", "--worker-tmp-dir", "/dev/shm", "app:app")
			if err != nil {
				return err
			}
			return s.answersWeb(ctx, false)
		},
	}
}
