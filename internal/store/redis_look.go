package store

import (
	"context"
	"errors"
	"fmt"
)

// ExamineRedis connects to the Redis of the URL, and checks its settings as OpenRedis does. It writes nothing there, and tries once. The error never
// contains the password.
func ExamineRedis(ctx context.Context, url string, o RedisOptions) error {
	r, err := newRedis(url, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err = r.monitor.examineAll(ctx); err != nil {
		err = fmt.Errorf("redis at %s: %w", r.url, err)
	}
	return errors.Join(err, r.Close())
}
