import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { describe, expect, it, vi } from "vitest";
import { Field, Radios, TextField } from "./field";

const described = (element: HTMLElement): string | null =>
  document.getElementById(element.getAttribute("aria-describedby") ?? "")?.textContent ?? null;

function Typed({ onChange }: { onChange: (value: string) => void }) {
  const [value, setValue] = useState("");
  const change = (typed: string): void => {
    setValue(typed);
    onChange(typed);
  };
  return <TextField label="Name" value={value} maxLength={3} wrong={value === "" ? null : "Taken."} onChange={change} />;
}

describe("Field", () => {
  it("names its control", () => {
    render(<Field label="Schema">{(control) => <select {...control} />}</Field>);
    expect(screen.getByLabelText("Schema").tagName).toBe("SELECT");
    expect(described(screen.getByLabelText("Schema"))).toBeNull();
  });

  it("describes the control by its hint", () => {
    render(
      <Field label="Schema" hint="As on the source.">
        {(control) => <input {...control} />}
      </Field>,
    );
    expect(described(screen.getByLabelText("Schema"))).toBe("As on the source.");
    expect(screen.getByLabelText("Schema").hasAttribute("aria-invalid")).toBe(false);
  });

  it("describes an invalid control by what is wrong, in place of the hint", () => {
    render(
      <Field label="Schema" hint="As on the source." wrong="Too long.">
        {(control) => <input {...control} />}
      </Field>,
    );
    expect(described(screen.getByLabelText("Schema"))).toBe("Too long.");
    expect(screen.getByLabelText("Schema").getAttribute("aria-invalid")).toBe("true");
    expect(screen.queryByText("As on the source.")).toBeNull();
  });

  it("keeps several fields apart", () => {
    render(
      <>
        <Field label="A">{(control) => <input {...control} />}</Field>
        <Field label="B">{(control) => <input {...control} />}</Field>
      </>,
    );
    expect(screen.getByLabelText("A").id).not.toBe(screen.getByLabelText("B").id);
  });
});

describe("TextField", () => {
  it("reports what is typed, and passes on what inputs have", async () => {
    const onChange = vi.fn();
    render(<Typed onChange={onChange} />);
    await userEvent.type(screen.getByLabelText("Name"), "abcd");
    expect(onChange.mock.calls.flat()).toEqual(["a", "ab", "abc"]);
    expect(described(screen.getByLabelText("Name"))).toBe("Taken.");
  });

  it("turns off what browsers add to names", () => {
    render(<Typed onChange={vi.fn()} />);
    expect(screen.getByLabelText("Name").getAttribute("autocomplete")).toBe("off");
    expect(screen.getByLabelText("Name").getAttribute("spellcheck")).toBe("false");
  });
});

describe("Radios", () => {
  const show = (onChange: (value: "now" | "later") => void = vi.fn()) =>
    render(
      <Radios
        legend="When"
        value="now"
        choices={[
          { value: "now", label: "Begin at once", hint: "Copies first." },
          { value: "later", label: "Keep it stopped" },
        ]}
        onChange={onChange}
      />,
    );
  const radio = (name: RegExp): HTMLInputElement => screen.getByRole("radio", { name });

  it("is a group with its choices", () => {
    show();
    expect(screen.getByRole("group", { name: "When" })).toBeTruthy();
    expect(radio(/^Begin at once/).checked).toBe(true);
    expect(radio(/^Keep it stopped/).checked).toBe(false);
    expect(screen.getByText("Copies first.")).toBeTruthy();
  });

  it("reports the choice", async () => {
    const onChange = vi.fn();
    show(onChange);
    await userEvent.click(radio(/^Keep it stopped/));
    expect(onChange.mock.calls).toEqual([["later"]]);
  });

  it("leaves other groups alone", () => {
    show();
    show();
    expect(new Set(screen.getAllByRole<HTMLInputElement>("radio").map(({ name }) => name)).size).toBe(2);
  });
});
