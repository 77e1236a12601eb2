"""What is read of g++'s dumps."""

from __future__ import annotations

from cudaops.timemodel.gimple import parse

NEVER_TAKEN = """
;; Function k (_Z1kPf, funcdef_no=1, decl_uid=2, cgraph_uid=3, symbol_order=4)

void k (float * p)
{
  float _1;

  <bb 2> [count: 1280]:
  _1 = *p_2(D);
  if (_1 < 0.0)
    goto <bb 3>; [0.00%]
  else
    goto <bb 4>; [100.00%]

  <bb 3> [count: 0]:
  *p_2(D) = 0.0;
  goto <bb 5>; [100.00%]

  <bb 4> [count: 0]:

  <bb 5> [count: 1280]:
  *p_2(D) = _1;
  return;

}
"""


def test_an_empty_block_between_two_that_ran_has_run_as_well() -> None:
    (function,) = parse(NEVER_TAKEN)
    assert {n: b.count for n, b in function.blocks.items()} == {2: 1280, 3: 0, 4: 1280, 5: 1280}
    assert function.blocks[4].successors == [5]


OVERLOADS = """
;; Function rows (_Z4rowsPd, funcdef_no=1, decl_uid=2, cgraph_uid=3, symbol_order=4) (unlikely executed)

void rows (double * p)
{
  <bb 2> [count: 118111600]:
  return;

}

;; Function rows (_Z4rowsPf, funcdef_no=2, decl_uid=3, cgraph_uid=4, symbol_order=5)

void rows (float * p)
{
  <bb 2> [count: 64]:
  return;

}
"""  # noqa: E501


def test_a_function_that_no_thread_came_to_has_guessed_counts() -> None:
    guessed, counted = parse(OVERLOADS)
    assert (guessed.mangled, guessed.ran) == ("_Z4rowsPd", False)
    assert (counted.mangled, counted.ran) == ("_Z4rowsPf", True)
