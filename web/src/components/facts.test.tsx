import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { Fact, Facts } from "./facts";

it("facts are a list of terms and definitions, with small print where there is some", () => {
  const { container } = render(
    <Facts>
      <Fact name="Key">id</Fact>
      <Fact name="Rows" note="as counted">
        12
      </Fact>
      {null}
    </Facts>,
  );
  expect(screen.getAllByRole("term").map((term) => term.textContent)).toEqual(["Key", "Rows"]);
  expect(screen.getAllByRole("definition").map((definition) => definition.textContent)).toEqual(["id", "12as counted"]);
  expect(container.querySelectorAll("small")).toHaveLength(1);
});
