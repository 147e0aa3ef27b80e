package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/dispatcherd/dispatcherd/client/concurrency"
)

func ExampleMapLimit() {
	words := []string{"first", "second", "third"}
	loud, err := concurrency.MapLimit(context.Background(), words, 2, func(_ context.Context, w string) (string, error) {
		return strings.ToUpper(w), nil
	})
	fmt.Println(loud, err)
	// Output: [FIRST SECOND THIRD] <nil>
}

func ExampleSemaphore() {
	ctx := context.Background()
	s := concurrency.NewSemaphore(10)
	if err := s.Acquire(ctx, 4); err != nil {
		log.Fatal(err)
	}
	go s.Release(4)
	fmt.Println(s.Wait(ctx), s.Acquire(ctx, 11))
	// Output: <nil> a weight of 11 can never be admitted: give 1 to 10
}

func ExampleBarrier() {
	ctx, b := context.Background(), concurrency.NewBarrier(2)
	go func() {
		_, _, err := b.Wait(ctx)
		if err != nil {
			log.Print(err)
		}
	}()
	generation, _, err := b.Wait(ctx) // both parties have arrived
	fmt.Println(generation, err)
	// Output: 0 <nil>
}

func ExampleFanOut() {
	pages := []int{1, 2, 3}
	sizes, errs := concurrency.FanOut(context.Background(), pages, 2, func(_ context.Context, page int) (int, error) {
		if page == 2 {
			return 0, errors.New("page 2 is torn")
		}
		return 10 * page, nil
	})
	fmt.Println(sizes, errors.Join(errs...))
	// Output: [10 0 30] page 2 is torn
}

func ExampleGroup() {
	g := concurrency.NewGroup(context.Background(), 2)
	for page := range 100 {
		if !g.Go(func(context.Context) error {
			if page == 2 {
				return errors.New("page 2 is torn")
			}
			return nil
		}) {
			break // a function has failed
		}
	}
	fmt.Println(g.Wait())
	// Output: page 2 is torn
}

func ExampleRWLock() {
	ctx := context.Background()
	prices, lock := map[string]int{}, concurrency.NewRWLock()
	if err := lock.Lock(ctx); err != nil { // RLock to read
		log.Fatal(err)
	}
	defer lock.Unlock()
	prices["tea"] = 3
	fmt.Println(prices, lock.TryRLock())
	// Output: map[tea:3] false
}
