package table_test

import "github.com/spindle-lock/spindle/internal/testkit/steps"

var hold, join, take, drop = steps.Hold, steps.Join, steps.Take, steps.Drop
