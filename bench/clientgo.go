package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The default settings of Kubernetes' own components are 15 s, 10 s and 2 s. The ratios are the same here.
func renewDeadline() time.Duration { return lease * 2 / 3 }
func retryPeriod() time.Duration   { return lease * 2 / 15 }

// runLeaderElection sets ReleaseOnCancel, which is off by default, so it releases the lock when ctx ends.
func runLeaderElection(ctx context.Context, p place, name string, say say) error {
	id := resourcelock.ResourceLockConfig{Identity: fmt.Sprint(os.Getpid())}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, metav1.NamespaceDefault, name, id, p.kubeconfig(), renewDeadline())
	if err != nil {
		return err
	}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: name, LeaseDuration: lease, RenewDeadline: renewDeadline(), RetryPeriod: retryPeriod(), ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { say.during(ctx, name) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	e.Run(ctx)
	if ctx.Err() == nil {
		return errors.New("the lock was lost")
	}
	return nil
}

func (p place) kubeconfig() *rest.Config {
	return &rest.Config{Host: p.Addr, BearerToken: p.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}
