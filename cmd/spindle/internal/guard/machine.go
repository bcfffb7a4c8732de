// Package guard keeps a service active on the machine that holds a lock, and inactive on the others.
//
//   - machine.go: the state, and what must be done at each event
//   - guard.go: doing it, over time
package guard

// service is what is known of the service on this machine.
type service int

const (
	unknown service = iota
	inactive
	activating
	active
	deactivating
)

// holding is how this machine holds the lock.
type holding int

const (
	none      holding = iota
	unsettled         // it was taken from a holder that may not have deactivated its service yet
	settled
)

// An event is something that happened.
type event int

const (
	started        event = iota
	electedDead          // the lock is held; its former holder may not know that yet
	electedFree          // the lock is held, and was free or released before
	confirmed            // the lock has been kept for long enough after electedDead
	unhealthy            // the health check failed while the lock is held
	activated            // the activation succeeded
	notActivated         // the activation failed
	deactivated          // the deactivation succeeded
	notDeactivated       // the deactivation failed
	lockLost             // the lock is not held any more
	withdrawn            // this machine does not compete for the lock any more, and does not hold it
	stopAsked            // the guard must end
	requested            // another machine asks for the lock
	announced            // the other machines know that the lock will be given up
)

// An action is something to be done.
type action int

const (
	activate     action = iota
	deactivate          // an activation that still runs is ended first
	compete             // for the lock
	competeLater        // once others have had their turn
	withdraw            // stop competing
	announce            // that the lock will be given up: the service stays active meanwhile
	wait                // until the former holder must have deactivated, then it is confirmed
	release             // the lock: another may activate at once
	abandon             // the lock, to expire: another must wait before it activates
	end
)

// machine is the state of a guard. All of it follows from two rules: a service is only activated, or left
// active, under a settled lock; and a lock is only released if the service is known to be inactive everywhere,
// because the next holder then does not wait.
type machine struct {
	handover   bool // the end of a service that is active is announced first
	service    service
	lock       holding
	failed     bool // something does not work here, so it gives the lock up
	stopping   bool
	announcing bool
}

// on returns what to do, in this order.
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

// term handles what happens to the lock.
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
			return nil // it gives the lock up anyway
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
	case e == notActivated && m.service == activating: // otherwise it was ended
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

// turnOff makes the service inactive if it is not, and then gives the lock up.
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

// giveUp gives the lock up, once the service is inactive.
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
