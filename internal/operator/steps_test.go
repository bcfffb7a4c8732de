package operator_test

import "github.com/spindle-lock/spindle/internal/testkit/steps"

var claim, hold, join, claimFor, take, drop = steps.Claim, steps.Hold, steps.Join, steps.ClaimFor, steps.Take, steps.Drop
