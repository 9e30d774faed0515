//! The command line of provers that hold several proof systems, each with a statement of its own; and what those do that have one.
//!
//! Why it is here: what a parent tells its child, and what a child makes of it, must agree, and there is one place for both.
//! Names are those that clap gives the values, in tables as on the command line.

use clap::{Args, ValueEnum};

use crate::allocator::Choice;
use crate::child::{Prover, serve};
use crate::cli::{Rows, Settings};
use crate::error::Error;
use crate::parent::{Task, compare};

/// Which statements to prove, how large, and how. Flatten it into the command line of the prover.
#[derive(Args, Clone, Debug)]
pub struct Statements<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Rows of the trace or constraints of the circuit, a power of two such as 2^16
    #[arg(long, default_value = "2^14")]
    rows: Rows,

    /// Prove this alone (may be given more than once) [default: all]
    #[arg(long, value_enum)]
    statement: Vec<S>,

    #[command(flatten)]
    settings: Settings,
}

impl<S: ValueEnum + Copy + PartialEq + Send + Sync + 'static> Statements<S> {
    /// Compares the allocators on what was asked for; or, in a child, has `serve_one` prove its one statement.
    ///
    /// # Errors
    /// When a child was asked for several statements, and as [`compare`] and `serve_one` say.
    pub fn run(
        &self,
        serve_one: impl FnOnce(S, Rows, Choice, &Settings) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match (self.settings.allocator, self.each().as_slice()) {
            (Some(choice), [statement]) => serve_one(*statement, self.rows, choice, &self.settings),
            (Some(_), _) => Err(Error::new("--allocator proves one statement: name it with one --statement")),
            (None, statements) => {
                let tasks: Vec<Task> = statements.iter().map(|statement| self.task(*statement)).collect();
                compare(&tasks, &self.settings)
            }
        }
    }

    /// Every statement that was asked for, each once.
    fn each(&self) -> Vec<S> {
        let asked = if self.statement.is_empty() { S::value_variants() } else { &self.statement };
        let mut each = Vec::new();
        for statement in asked {
            if !each.contains(statement) {
                each.push(*statement);
            }
        }
        each
    }

    /// Describes a statement for the table, and for the child that is to prove it.
    fn task(&self, statement: S) -> Task {
        let value = statement.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        Task {
            statement: format!("{name} {}", self.rows),
            arguments: vec![format!("--statement={name}"), format!("--rows={}", self.rows)],
        }
    }
}

/// Compares the allocators on a prover's one statement, `name`, of so many rows; or, in a child, proves what `prepare` makes.
///
/// # Errors
/// As [`compare`] and [`serve`] say.
pub fn prove_one<P: Prover>(
    name: &str,
    rows: Rows,
    settings: &Settings,
    prepare: impl FnOnce(Rows) -> P,
) -> Result<(), Error> {
    match settings.allocator {
        Some(choice) => serve(choice, settings, || prepare(rows)),
        None => {
            let statement = format!("{name} {rows}");
            compare(&[Task { statement, arguments: vec![format!("--rows={rows}")] }], settings)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser, ValueEnum};

    use super::{Choice, Statements};

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        statements: Statements<Statement>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    enum Statement {
        Sum,
        Sorted,
    }

    fn parse(words: &str) -> Statements<Statement> {
        Cli::try_parse_from(words.split(' ')).expect("parses").statements
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_child_proves_what_its_parent_says() {
        let parent = parse("prove --rows 2^6");
        for statement in Statement::value_variants() {
            let task = parent.task(*statement);
            let child = parse(&format!("prove --allocator=nalloc {}", task.arguments.join(" ")));
            let mut served = Vec::new();
            let outcome = child.run(|statement, rows, choice, _| {
                served.push((statement, rows.log2(), choice));
                Ok(())
            });
            assert!(outcome.is_ok() && served == [(*statement, 6, Choice::NAlloc)], "{served:?}");
        }
        assert_eq!(parent.task(Statement::Sorted).statement, "sorted 2^6");
    }

    #[test]
    fn a_statement_asked_for_twice_is_proved_once() {
        let twice = parse("prove --statement sorted --statement sum --statement sorted");
        assert_eq!(twice.each(), [Statement::Sorted, Statement::Sum]);
        assert_eq!(parse("prove").each(), Statement::value_variants());
    }

    #[test]
    fn a_child_that_is_told_several_says_so() {
        let error = parse("prove --allocator system").run(|_, _, _, _| Ok(())).expect_err("two statements");
        assert!(error.to_string().contains("one --statement"), "{error}");
    }
}
