// Package serve shows a lock table to people and to Prometheus, over HTTP, without touching the programs that use
// the locks.
//
//   - server.go: the loop that reads the table; pace.go: how often; shown.go: what of it is shown
//   - history.go: the terms of the last hour, in memory, as far as the table showed; term.go: when one ended, and why
//   - wire.go: what a page is sent; feed.go: how each frame reaches every open page
//   - http.go: who may ask, and what is answered; metrics.go: the answer to Prometheus;
//     groups.go: what it says of a group
//   - page: the page, which loads nothing from elsewhere
package serve
