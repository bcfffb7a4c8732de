package run

// service is the known state of the service on this machine.
type service int

const (
	unknown service = iota
	inactive
	activating
	active
	deactivating
)

// standing is how this machine holds the lock.
type standing int

const (
	none      standing = iota
	unsettled          // the last holder may not have deactivated its service yet
	settled            // the service is inactive on all other machines
)

// guardMachine is the state machine of a guard. It follows two rules:
//
//   - The service is active here only while this machine holds the lock and the service is inactive on all other
//     machines.
//   - The lock is released only when the service is known to be inactive on every machine, because the next holder
//     activates the service immediately.
type guardMachine struct {
	handover   bool // guard announces a stop first if the service is active
	service    service
	lock       standing
	failed     bool // the service does not work on this machine, so the machine gives up the lock
	stopping   bool
	announcing bool
}

// on handles an event, and returns the actions to take, in this order.
func (m *guardMachine) on(e happening) []deed {
	switch e {
	case begun:
		return m.turnOff()
	case ending:
		m.stopping = true
		if m.handover && m.service == active {
			return m.announce()
		}
		return m.turnOff()
	case withdrawn:
		return []deed{end}
	case activated, notActivated, deactivated, notDeactivated:
		return m.command(e)
	}
	return m.term(e)
}

// term handles the events of the lock.
func (m *guardMachine) term(e happening) []deed {
	switch e {
	case elected, electedDead:
		m.lock = settled
		if e == electedDead {
			m.lock = unsettled
		}
		switch {
		case m.stopping:
			return m.giveUp()
		case m.lock == unsettled:
			return []deed{confirm}
		}
		return m.turnOn()
	case confirmed:
		if m.lock != unsettled {
			return nil
		}
		m.lock = settled
		return m.turnOn()
	case unfit:
		m.failed = true
		return m.turnOff()
	case requested:
		if m.service != activating && m.service != active {
			return nil // the lock is about to be given up anyway
		}
		return m.announce()
	case announced:
		return m.turnOff()
	case lost:
		m.leave()
		return m.turnOff()
	}
	return nil
}

// command handles the result of a command.
func (m *guardMachine) command(e happening) []deed {
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
		return []deed{deactivate}
	case e == notDeactivated:
		m.leave()
		return []deed{abandon, deactivate}
	}
	return nil
}

func (m *guardMachine) announce() []deed {
	if m.announcing || m.lock != settled {
		return nil
	}
	m.announcing = true
	return []deed{announce}
}

func (m *guardMachine) leave() { m.lock, m.announcing = none, false }

func (m *guardMachine) turnOn() []deed {
	m.service = activating
	return []deed{activate}
}

// turnOff deactivates the service unless it is inactive, and then gives up the lock.
func (m *guardMachine) turnOff() []deed {
	switch m.service {
	case deactivating:
		return nil
	case inactive:
		if m.lock == none && m.stopping {
			return []deed{withdraw}
		}
		return m.giveUp()
	}
	m.service = deactivating
	return []deed{deactivate}
}

// giveUp gives up the lock. The service must be inactive.
func (m *guardMachine) giveUp() []deed {
	var actions []deed
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
