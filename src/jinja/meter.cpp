#include "quire/jinja/meter.h"

namespace quire::jinja {

void Meter::out_of_steps() { fail_limit("the template takes too many steps"); }
void Meter::out_of_memory() { fail_limit("the template holds too much memory"); }
void Meter::text_too_long() { fail_limit("the template makes too long a text"); }

}  // namespace quire::jinja
