// Package guard keeps a service active on the machine that holds a lock, and inactive on the others.
//
//   - machine.go: the state machine, which determines the actions for each event
//   - guard.go: the runner, which carries out the actions
//   - state.go: the state that observers see
package guard

// service is the known state of the service on this machine.
type service int

const (
	unknown service = iota
	inactive
	activating
	active
	deactivating
)

// holding is the way in which this machine holds the lock.
type holding int

const (
	none      holding = iota
	unsettled         // the last holder may not have deactivated its service yet
	settled           // the service is inactive on all other machines
)

// An event is something that happened.
type event int

const (
	started        event = iota
	electedDead          // the lock is held; the last holder did not release it, and may not know that it lost the lock
	electedFree          // the lock is held; it was free or released before
	confirmed            // the lock has been kept for the confirmation after electedDead
	unhealthy            // the health check failed while the lock is held
	activated            // the activation succeeded
	notActivated         // the activation failed
	deactivated          // the deactivation succeeded
	notDeactivated       // the deactivation failed
	lockLost             // the lock is no longer held
	withdrawn            // this machine has stopped competing for the lock, and does not hold it
	stopAsked            // guard must end
	requested            // another machine requests the lock
	announced            // the other machines know that the lock will be given up
)

// An action is something to be done.
type action int

const (
	activate     action = iota // activate the service
	deactivate                 // deactivate the service, after ending an activation in progress
	compete                    // compete for the lock
	competeLater               // compete for the lock after other machines have had their turn
	withdraw                   // stop competing
	announce                   // announce that the lock will be given up; the service stays active until the machines know
	wait                       // wait for the confirmation; the event confirmed follows
	release                    // release the lock; the next holder activates the service immediately
	abandon                    // let the lock expire; the next holder waits before it activates the service
	end                        // end guard
)

// machine is the state machine of a guard. It follows two rules. The service is activated, and stays active, only under
// a settled lock. The lock is released only when the service is known to be inactive everywhere, because the next
// holder does not wait after a release.
type machine struct {
	handover   bool // guard announces a stop first if the service is active
	service    service
	lock       holding
	failed     bool // the service does not work on this machine, so the machine gives up the lock
	stopping   bool
	announcing bool
}

// on handles an event, and returns the actions to take, in this order.
func (m *machine) on(e event) []action {
	switch e {
	case started:
		return m.turnOff()
	case stopAsked:
		m.stopping = true
		if m.handover && m.service == active {
			return m.announce()
		}
		return m.turnOff()
	case withdrawn:
		return []action{end}
	case activated, notActivated, deactivated, notDeactivated:
		return m.command(e)
	}
	return m.term(e)
}

// term handles the events of the lock.
func (m *machine) term(e event) []action {
	switch e {
	case electedDead, electedFree:
		m.lock = settled
		if e == electedDead {
			m.lock = unsettled
		}
		switch {
		case m.stopping:
			return m.giveUp()
		case m.lock == unsettled:
			return []action{wait}
		}
		return m.turnOn()
	case confirmed:
		if m.lock != unsettled {
			return nil
		}
		m.lock = settled
		return m.turnOn()
	case unhealthy:
		m.failed = true
		return m.turnOff()
	case requested:
		if m.service != activating && m.service != active {
			return nil // the lock is about to be given up anyway
		}
		return m.announce()
	case announced:
		return m.turnOff()
	case lockLost:
		m.leave()
		return m.turnOff()
	}
	return nil
}

// command handles the result of a command.
func (m *machine) command(e event) []action {
	switch {
	case e == activated && m.service == activating:
		m.service = active
		return nil
	case e == notActivated && m.service == activating: // otherwise guard ended the activation
		m.failed = true
		return m.turnOff()
	case e == deactivated:
		m.service = inactive
		return m.giveUp()
	case e == notDeactivated && m.lock == none:
		return []action{deactivate}
	case e == notDeactivated:
		m.leave()
		return []action{abandon, deactivate}
	}
	return nil
}

func (m *machine) announce() []action {
	if m.announcing || m.lock != settled {
		return nil
	}
	m.announcing = true
	return []action{announce}
}

func (m *machine) leave() { m.lock, m.announcing = none, false }

func (m *machine) turnOn() []action {
	m.service = activating
	return []action{activate}
}

// turnOff deactivates the service unless it is inactive, and then gives up the lock.
func (m *machine) turnOff() []action {
	switch m.service {
	case deactivating:
		return nil
	case inactive:
		if m.lock == none && m.stopping {
			return []action{withdraw}
		}
		return m.giveUp()
	}
	m.service = deactivating
	return []action{deactivate}
}

// giveUp gives up the lock. The service must be inactive.
func (m *machine) giveUp() []action {
	var actions []action
	switch m.lock {
	case settled:
		actions = append(actions, release)
	case unsettled:
		actions = append(actions, abandon)
	}
	m.leave()
	switch {
	case m.stopping:
		actions = append(actions, end)
	case m.failed:
		actions = append(actions, competeLater)
	default:
		actions = append(actions, compete)
	}
	m.failed = false
	return actions
}
