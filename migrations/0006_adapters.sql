-- Jobs whose checkpoint has a LoRA adapter added to it.

alter table jobs
    -- Path of the adapter below the model root.
    add column adapter text;
