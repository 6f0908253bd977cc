//! Control flow: branches, calls, ends.

use super::lift::custom;
use super::printf;
use super::site::{Issue, Site, issue};
use super::{Family, row};
use crate::builder::Entity;
use crate::codes;
use crate::exec::code::CallSite;
use crate::exec::pipe;
use crate::exec::{Context, Fault, Flow, Op, fault};
use crate::model::lanes;
use crate::ptx::ast::Operand;
use crate::types::Ty;

pub(super) static FAMILY: Family = Family {
    title: "Control flow",
    section: "9.7.12",
    rows: &[
        row("bra{.uni}", "target", &[], |s| {
            let target = s.label(0)?;
            s.f.jumps_to(target);
            Ok(custom(move |_| Ok(Flow::Jump(target))))
        }),
        row("brx.idx{.uni}", "index, targets", &[], brx),
        row("call{.uni}", "function", &[], call),
        row("call{.uni}", "(result), function, (arguments)", &[], call),
        row("call{.uni}", "function, (arguments)", &[], call),
        row("ret{.uni}", "", &[], |s| {
            s.f.ends_here();
            s.f.settles();
            let is_entry = s.f.is_entry;
            // Pending operations at the end of a kernel are an error, which the runner reports.
            Ok(custom(move |cx| if is_entry { Ok(Flow::Return) } else { settled(cx, Flow::Return) }))
        }),
        row("exit", "", &[], |s| {
            s.f.ends_here();
            s.f.settles();
            Ok(custom(|_| Ok(Flow::Exit)))
        }),
        row("trap", "", &[], |s| {
            s.f.ends_here();
            Ok(custom(|cx| {
                let lane = cx.active.trailing_zeros() as usize;
                Err(fault(
                    codes::TRAP,
                    lane,
                    "the program executed `trap`",
                    "look for a failed assertion, or for code that was meant to be unreachable",
                ))
            }))
        }),
        row("brkpt", "", &[], |_| Ok(custom(|_| Ok(Flow::Next)))),
    ],
};

fn brx(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let index = s.src(0, Ty::B32)?;
    let list = match s.operands.get(1) {
        Some(Operand::Name { name, offset: 0 }) => match s.f.lookup(name)? {
            Entity::Targets(id) => {
                let list = s.f.branch_targets(id).to_vec();
                list.iter().for_each(|&l| s.f.jumps_to(l));
                list
            }
            _ => return issue(codes::BAD_OPERANDS, format!("`{name}` is not a list of branch targets"), ""),
        },
        _ => return issue(codes::BAD_OPERANDS, "operand 2 must be the name of a .branchtargets list", ""),
    };
    Ok(custom(move |cx| {
        let index = *cx.src(index);
        for lane in lanes(cx.active) {
            cx.targets[lane] = match list.get(index[lane] as usize) {
                Some(&t) => t,
                None => {
                    let message = format!(
                        "the index of brx.idx is {}, but the list has {} targets",
                        index[lane],
                        list.len()
                    );
                    return Err(fault(
                        codes::UNDEFINED,
                        lane,
                        message,
                        "use an index that is less than the number of targets",
                    ));
                }
            };
        }
        Ok(Flow::Scatter)
    }))
}

/// Returns the frame offsets and sizes of call parameters or results.
fn frame_list<'a>(s: &mut Site<'_, '_, 'a>, operand: &Operand<'a>) -> Result<Vec<(u64, u64)>, Issue> {
    let Operand::List(list) = operand else {
        return issue(codes::BAD_OPERANDS, "write the operands of a call as lists in parentheses", "");
    };
    list.iter()
        .map(|o| match *o {
            Operand::Name { name, offset: 0 } => match s.f.lookup(name)? {
                Entity::Frame { offset, bytes } => Ok((offset, bytes)),
                _ => issue(codes::BAD_OPERANDS, format!("`{name}` is not a .param variable"), ""),
            },
            _ => {
                issue(codes::NOT_SIMULATED, "call operands other than .param variables are not supported", "")
            }
        })
        .collect()
}

fn call(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let operands = s.operands.to_vec();
    let (mut returns, mut args, mut name) = (Vec::new(), Vec::new(), None);
    for o in &operands {
        match (o, name) {
            (Operand::List(_), None) => returns = frame_list(s, o)?,
            (Operand::List(_), Some(_)) => args = frame_list(s, o)?,
            (Operand::Name { name: n, offset: 0 }, None) => name = Some(*n),
            _ => {
                return issue(
                    codes::NOT_SIMULATED,
                    "this form of call is not supported",
                    "call a function by its name",
                );
            }
        }
    }
    let Some(name) = name else { return issue(codes::BAD_OPERANDS, "the call does not name a function", "") };
    if name.starts_with('%') {
        return issue(codes::NOT_SIMULATED, "indirect calls are not simulated", "call the function by name");
    }
    if let Some(op) = printf::builtin(name, &args, &returns) {
        return op;
    }
    if !s.f.module().function_names.contains_key(name)
        && let Some(op) = (s.f.module().builtin)(name, &args, &returns)
    {
        return op;
    }
    let function = s.f.callee(name)?;
    let callee = &s.f.module().functions[function];
    let sizes = |list: &[(u64, u64)]| list.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>();
    if sizes(&callee.params) != sizes(&args) || sizes(&callee.returns) != sizes(&returns) {
        return issue(
            codes::BAD_OPERANDS,
            format!("the arguments of this call do not match the parameters of `{name}`"),
            "",
        );
    }
    let offsets = |list: &[(u64, u64)]| list.iter().map(|(offset, _)| *offset).collect();
    let site = CallSite { function, args: offsets(&args), returns: offsets(&returns) };
    let calls = &mut s.f.module().calls;
    calls.push(site);
    let index = calls.len() as u32 - 1;
    s.f.settles();
    Ok(custom(move |cx| settled(cx, Flow::Call(index))))
}

/// Continues in another frame, when no pending operation uses the registers of this one.
fn settled(cx: &mut Context<'_>, to: Flow) -> Result<Flow, Fault> {
    Ok(match pipe::settle(cx) {
        Flow::Next => to,
        wait => wait,
    })
}
