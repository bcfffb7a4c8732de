// Package etcd runs an etcd server with its default settings.
package etcd

import (
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// Serve runs a server of one member on a free loopback port, with its data in dir, until the process ends. It calls
// ready with the endpoint for clients.
func Serve(dir string, ready func(endpoint string)) error {
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "error"
	c.ListenClientUrls, c.AdvertiseClientUrls = anywhere, anywhere
	c.ListenPeerUrls, c.AdvertisePeerUrls = anywhere, anywhere
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	<-server.Server.ReadyNotify()
	ready(server.Clients[0].Addr().String())
	return <-server.Err()
}
