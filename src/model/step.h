// What the host wants of a step, and what it gets. Rows are counted among those that the batch wants (Batch::wanted).
#pragma once

#include <cstdint>
#include <span>

#include "quire/backend/backend.h"
#include "quire/backend/sampling_job.h"

namespace quire::model {

struct StepWants {
  std::span<const sampling::Job> jobs;    // tokens; within the limits of sampling
  std::span<const std::uint32_t> logits;  // rows whose logits the host wants to see, ascending
  // Rows whose hidden states the host wants to see, ascending: what the output matrix is multiplied with. If a step
  // wants only these, logits are not computed.
  std::span<const std::uint32_t> hidden = {};
  sampling::MaskGate* masks = nullptr;  // the masks of the jobs are complete after its wait(); null: now
  // The hidden states of all rows of the batch, for a head that guesses (Model::head()). Only of models that have one.
  bool every_hidden = false;
  // Of a head: a hidden state for each row of the batch, [rows][embedding]. It must stay as it is until the step is
  // done.
  std::span<const float> given = {};
};

// Valid until the next step.
struct StepOutput {
  std::span<const sampling::Picked> picked;  // by job
  HostRows logits;                           // [wanted][vocabulary]; only the rows that were asked for may be looked at
  HostRows hidden = {};                      // [wanted][embedding], after the final norm; the same
  HostRows every_hidden = {};                // [rows of the batch][embedding], after the final norm
};

}  // namespace quire::model
