package lock

import "github.com/spindle-lock/spindle/internal/table"

// Name makes the name of a lock from parts, such as a target and a context: Name("router-7", "snmp-query"). Two
// different lists of parts never make the same name. Name joins the parts by slashes. In each part, it escapes every
// character except letters, digits and -_.~$&+=:@. It also escapes an underscore that is followed by 16 or more digits
// at the end of the part.
func Name(parts ...string) string { return table.Join(parts...) }
