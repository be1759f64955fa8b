import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useEffect, useId, useState } from "react";
import { useLocation } from "wouter";
import type { Action } from "../actions";
import { useStore } from "../store";
import { queryClient } from "../stream/queryClient";
import { usePermission } from "../usePermission";
import { announce } from "./announcements";
import { asked } from "./asked";
import { Dialog } from "./dialog";
import { ProblemNote } from "./problemNote";

/** A button for each action that one may do; each asks first, and says what will happen. */
export function ActionButtons({ actions, first = false }: { actions: Action[]; first?: boolean }) {
  const may = usePermission();
  const offered = actions.filter(({ role }) => may(role ?? "operator"));
  return offered.map((action, number) => (
    <button
      key={action.verb}
      type="button"
      className={action.serious === true ? "quiet serious" : first && number === 0 ? "primary" : "quiet"}
      aria-label={`${action.verb} ${action.name}`}
      onClick={() => asked.set(action)}
    >
      {action.verb}
    </button>
  ));
}

/** Asks about the action whose button was pressed, until that is answered or the page is left. */
export function AskedAction({ place }: { place: string }) {
  const action = useStore(asked);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page takes the question away.
  useEffect(() => asked.set(null), [place]);
  return action !== null && <ActionDialog key={action.title} action={action} onClose={() => asked.set(null)} />;
}

function ActionDialog({ action, onClose }: { action: Action; onClose: () => void }) {
  const [chosen, setChosen] = useState(false);
  const [typed, setTyped] = useState("");
  const id = useId();
  const [, navigate] = useLocation();
  const work = useMutation({
    mutationFn: () => action.run(chosen),
    onMutate: () => action.subject?.state(),
    onSuccess: async (_answer, _nothing, was) => {
      onClose();
      if (action.leadsTo !== undefined) navigate(action.leadsTo);
      // A change of pages dismisses earlier announcements.
      setTimeout(() => announce(action.done, action.subject, was));
      await queryClient.invalidateQueries();
    },
  });
  const loses = action.loses ?? (chosen ? action.choice?.loses : undefined);
  const ready = loses === undefined || typed === action.name;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (ready && !work.isPending) work.mutate();
  };
  return (
    <Dialog title={action.title} onClose={onClose}>
      <form onSubmit={submit}>
        <ul className="does">
          {action.does.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
        {action.choice !== undefined && (
          <label className="check choice">
            <input type="checkbox" checked={chosen} onChange={(event) => setChosen(event.target.checked)} />
            {action.choice.label}
          </label>
        )}
        {loses !== undefined && (
          <div className="choice">
            <p className="tone-bad">{loses}</p>
            <label htmlFor={id}>
              Type <strong>{action.name}</strong> to confirm
            </label>
            <input id={id} value={typed} autoComplete="off" spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
          </div>
        )}
        {work.error !== null && <ProblemNote error={work.error} />}
        <div className="dialog-foot">
          <button type="button" onClick={onClose} data-first>
            Cancel
          </button>
          <button type="submit" className={action.serious === true ? "primary danger" : "primary"} disabled={!ready || work.isPending}>
            {work.isPending ? "Asking …" : action.verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
