// Package serve shows a lock table over HTTP, to people on a page and to Prometheus as metrics. It does not affect the
// programs that use the locks.
//
//   - server.go: the loop that reads the table; pace.go: how often it does so; shown.go: which locks are shown
//   - history.go: the terms of the last hour, kept in memory, as far as the looks have shown them; term.go: when a term
//     ended, and why
//   - wire.go: the data that is sent to a page; feed.go: how each frame reaches every open page
//   - http.go: the HTTP handlers, and which requests they accept; metrics.go: the metrics for Prometheus;
//     groups.go: the metrics of groups
//   - page: the page, which loads nothing from other sites
package serve
