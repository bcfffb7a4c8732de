// Package serve implements the command serve, which shows a lock table over HTTP, as a web page for people and as metrics for Prometheus. It only reads the
// table, so it does not affect the programs that use the locks.
//
//   - serve.go, exclude.go: the command serve and its flags
//   - server.go: the loop that reads the table
//   - shown.go: which locks the page shows
//   - history.go, term.go: the terms of the last hour, as far as the reads have shown them
//   - wire.go: the JSON that is sent to open pages
//   - feed.go: the most recent changes, for all open pages
//   - http.go: the HTTP handlers, and the check of the Host header
//   - metrics.go: the metrics for Prometheus
//   - page: the web page, which loads nothing from other sites
package serve
