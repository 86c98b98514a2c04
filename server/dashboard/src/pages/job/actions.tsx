// What can be done with a job, and what can be taken from it.
import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { api, ok, problemOf, ROOT, request } from '../../api/client';
import { key } from '../../api/key';
import type { Job } from '../../api/types';
import { title } from '../../lib/format';
import { href } from '../../router';
import { Trouble } from '../../ui/parts';

export function Actions({ job, open, onCancelled }: { job: Job; open: boolean; onCancelled(): void }) {
  return (
    <div class="actions">
      {open ? (
        <Cancel job={job} onCancelled={onCancelled} />
      ) : (
        <>
          <a class="button" href={href(['compare'], { candidate: job.id })}>
            Compare
          </a>
          <File job={job} path="report" name={`assay-${job.id}.html`} label="Report" />
          <File job={job} path="archive" name={`assay-${job.id}.zip`} label="Archive" />
        </>
      )}
      <File job={job} path="results" name={`assay-${job.id}.json`} label="Results JSON" />
    </div>
  );
}

/** A link to a file of the job. A link sends no key, so with one the file is fetched and saved. */
function File({ job, path, name, label }: { job: Job; path: string; name: string; label: string }) {
  const failure = useSignal<Error | null>(null);
  const address = `${ROOT}/jobs/${job.id}/${path}`;
  if (key.value === null) {
    return (
      <a class="button" href={address}>
        {label}
      </a>
    );
  }
  const save = async () => {
    failure.value = null;
    try {
      const response = await request(new Request(address));
      if (!response.ok) throw problemOf(await response.json().catch(() => null), response.status);
      const link = document.createElement('a');
      link.href = URL.createObjectURL(await response.blob());
      link.download = named(response) ?? name;
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (cause) {
      failure.value = cause as Error;
    }
  };
  return (
    <>
      <button type="button" onClick={save}>
        {label}
      </button>
      <Trouble error={failure.value} what={label} />
    </>
  );
}

/** The name that the service gives a file. */
function named(response: Response): string | null {
  return response.headers.get('content-disposition')?.match(/filename="([^"]+)"/)?.[1] ?? null;
}

function Cancel({ job, onCancelled }: { job: Job; onCancelled(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const failure = useSignal<Error | null>(null);
  const cancel = async () => {
    try {
      await ok(api.DELETE('/jobs/{id}', { params: { path: { id: job.id } } }));
      dialog.current?.close();
      onCancelled();
    } catch (cause) {
      failure.value = cause as Error;
    }
  };
  return (
    <>
      <button type="button" class="danger" onClick={() => dialog.current?.showModal()}>
        Cancel job…
      </button>
      <dialog ref={dialog} aria-labelledby="cancel-title">
        <h2 id="cancel-title">Cancel {title(job)}?</h2>
        <p>
          Its workers stop at once. What is counted so far stays readable, and the job cannot go on later.
        </p>
        <Trouble error={failure.value} what="Cancelling" />
        <div class="row end">
          <button type="button" onClick={() => dialog.current?.close()}>
            Keep it running
          </button>
          <button type="button" class="danger" onClick={cancel}>
            Cancel job
          </button>
        </div>
      </dialog>
    </>
  );
}
