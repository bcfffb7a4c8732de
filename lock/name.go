package lock

import "github.com/spindle-lock/spindle/internal/table"

// Name makes the name of a lock from parts, such as a target and a context: Name("router-7", "snmp-query"). Different
// parts never make the same name, whatever they contain. The parts are joined by slashes. In each part, every character
// except letters, digits and -_.~$&+=:@ is escaped, and so is an underscore before 16 or more digits at the end.
func Name(parts ...string) string { return table.Join(parts...) }
